"""Worker processes, seen from the gateway (`pool`, `client`: no torch) and from inside."""

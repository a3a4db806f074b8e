"""What clients of the API speak to: listening sockets, HTTP and WebSockets with bounds."""

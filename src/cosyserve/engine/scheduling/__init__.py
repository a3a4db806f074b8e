"""Who goes next: sessions, their plans, their chunks."""

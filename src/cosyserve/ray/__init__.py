"""Workers on the nodes of a Ray cluster: Ray places them, and links of our own carry speech."""

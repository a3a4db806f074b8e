"""What runs in containers, described once: as Compose files, as a Helm chart, behind a front."""

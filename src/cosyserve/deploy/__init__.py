"""Plans and renders deployments. Knows no engine and no running server."""

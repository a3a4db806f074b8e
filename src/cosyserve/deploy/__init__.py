"""Renders and checks deployments on other servers."""

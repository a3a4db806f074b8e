"""Attention of rows that lie one behind another."""

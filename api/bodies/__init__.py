"""Requests' bodies: read, bounded before they are parsed, and taken apart."""

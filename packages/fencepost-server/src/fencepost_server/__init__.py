"""The HTTP application: one address for every service that is installed, and the console for people."""

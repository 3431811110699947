"""The HTTP application: one address for every installed service, and the console for operators."""

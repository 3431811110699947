"""Sources: where records come from. Each can be read again from an offset, and declares its guarantee."""

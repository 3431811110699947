"""What `doctor` looks at: one module a part of the machine, each answering with findings."""

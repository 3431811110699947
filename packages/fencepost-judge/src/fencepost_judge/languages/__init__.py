"""Languages as data: one YAML file each. A language is offered when its programs are on this machine."""

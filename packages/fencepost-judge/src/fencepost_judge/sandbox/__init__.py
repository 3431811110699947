"""Running one program that nobody trusts: `box/` is the C program, the modules beside it drive it."""

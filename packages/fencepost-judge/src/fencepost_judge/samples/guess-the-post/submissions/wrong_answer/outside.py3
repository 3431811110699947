print(0, flush=True)
input()

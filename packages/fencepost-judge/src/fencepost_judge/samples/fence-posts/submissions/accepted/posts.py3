length, step = map(int, input().split())
print(length // step + 1)

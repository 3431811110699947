length, step = map(int, input().split())
print(length // step + length % step // (length % step))

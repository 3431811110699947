input()
print(max(map(len, input().split("w"))))

_, k = map(int, input().split())
boards = input()
best = left = white = 0
for right, board in enumerate(boards):
    white += board == "w"
    while white > k:
        white -= boards[left] == "w"
        left += 1
    best = max(best, right - left + 1)
print(best)

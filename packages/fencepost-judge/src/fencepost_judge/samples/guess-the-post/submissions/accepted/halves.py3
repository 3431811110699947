low, high = 1, 1000
answer = ""
while answer != "found":
    middle = (low + high) // 2
    print(middle, flush=True)
    answer = input()
    if answer == "lower":
        high = middle - 1
    else:
        low = middle + 1

#include <stdio.h>
int main(void) {
  static char boards[200001];
  int n, k, left = 0, white = 0, best = 0;
  if (scanf("%d %d %200000s", &n, &k, boards) != 3) return 1;
  for (int right = 0; right < n; right++) {
    white += boards[right] == 'w';
    while (white > k) white -= boards[left++] == 'w';
    if (right - left + 1 > best) best = right - left + 1;
  }
  printf("%d\n", best);
  return 0;
}

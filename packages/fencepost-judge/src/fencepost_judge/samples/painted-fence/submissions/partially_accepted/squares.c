#include <stdio.h>
int main(void) {
  static char boards[200001];
  int n, k, best = 0;
  if (scanf("%d %d %200000s", &n, &k, boards) != 3) return 1;
  for (int left = 0; left < n; left++)
    for (volatile int right = left, white = 0; right < n; right++) {
      white += boards[right] == 'w';
      if (white <= k && right - left + 1 > best) best = right - left + 1;
    }
  printf("%d\n", best);
  return 0;
}

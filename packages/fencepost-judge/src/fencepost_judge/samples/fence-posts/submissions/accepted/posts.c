#include <stdio.h>
int main(void) {
  long long length, step;
  if (scanf("%lld %lld", &length, &step) != 2) return 1;
  printf("%lld\n", length / step + 1);
  return 0;
}

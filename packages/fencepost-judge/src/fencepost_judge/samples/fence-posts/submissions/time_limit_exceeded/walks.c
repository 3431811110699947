#include <stdio.h>
int main(void) {
  long long length, step, posts = 1;
  if (scanf("%lld %lld", &length, &step) != 2) return 1;
  for (volatile long long place = step; place <= length; place += step) posts++;
  printf("%lld\n", posts);
  return 0;
}

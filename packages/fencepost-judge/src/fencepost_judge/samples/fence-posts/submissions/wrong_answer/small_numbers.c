#include <stdio.h>
int main(void) {
  int length, step;
  if (scanf("%d %d", &length, &step) != 2) return 1;
  printf("%d\n", step ? length / step + 1 : 0);
  return 0;
}

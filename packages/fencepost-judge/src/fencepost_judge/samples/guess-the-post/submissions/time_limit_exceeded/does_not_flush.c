#include <stdio.h>
#include <string.h>
int main(void) {
  char answer[16] = "";
  for (int low = 1, high = 1000; strcmp(answer, "found");) {
    int middle = (low + high) / 2;
    printf("%d\n", middle);
    if (scanf("%15s", answer) != 1) return 1;
    if (!strcmp(answer, "lower")) high = middle - 1;
    else low = middle + 1;
  }
  return 0;
}

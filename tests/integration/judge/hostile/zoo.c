#include "zoo.h"

static struct zoo_case cases[512];
static int count;

void zoo_add(const char *name, const char *verdict, int signal, bool (*escaped)(void)) {
  cases[count++] = (struct zoo_case){name, verdict, signal, escaped};
}

int main(int argc, char **argv) {
  if (argc == 2 && !strcmp(argv[1], "--list"))
    for (int i = 0; i < count; i++) printf("%s %s %d\n", cases[i].name, cases[i].verdict, cases[i].signal);
  for (int i = 0; argc == 2 && i < count; i++)
    if (!strcmp(argv[1], cases[i].name)) puts(cases[i].escaped() ? "ESCAPED" : "held");
  return 0;
}

/* Plays the fence: knows the rotten post, answers guesses, and says 42 (right) or 43 (wrong). */
#include <stdio.h>
#include <stdlib.h>

static int wrong(const char *folder, const char *why) {
  char path[512];
  snprintf(path, sizeof path, "%s/judgemessage.txt", folder);
  FILE *file = fopen(path, "w");
  if (file) fputs(why, file), fclose(file);
  return 43;
}

int main(int argc, char **argv) {
  int secret, guess;
  FILE *input = argc > 3 ? fopen(argv[1], "r") : NULL;
  if (!input || fscanf(input, "%d", &secret) != 1) return 1;
  for (int left = 10; left > 0; left--) {
    if (scanf("%d", &guess) != 1) return wrong(argv[3], "There is no guess to read.");
    if (guess < 1 || guess > 1000) return wrong(argv[3], "There is no such post.");
    puts(guess == secret ? "found" : guess > secret ? "lower" : "higher");
    fflush(stdout);
    if (guess == secret) return scanf(" %d", &guess) == 1 ? wrong(argv[3], "It went on after the end.") : 42;
  }
  return wrong(argv[3], "Ten guesses were not enough.");
}

// A library with NVRTC's functions that does what the text of its program says. Its "PTX" is how many programs the
// process has compiled, so that it tells whether a compile was the first one.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int compiled;
static char text[4096], answer[64];

const char* nvrtcGetErrorString(int code) { return code ? "an error" : "no error"; }
int nvrtcCreateProgram(void** program, const char* source, const char* name, int n, const char** h, const char** i) {
  strncpy(text, source, sizeof text - 1);
  *program = text;
  return strcmp(text, "refuse") == 0;
}
int nvrtcAddNameExpression(void* program, const char* name) { return 0; }
int nvrtcGetLoweredName(void* program, const char* name, const char** lowered) { return *lowered = name, 0; }
int nvrtcCompileProgram(void* program, int count, const char** flags) {
  char word[16], path[2048] = "";
  sscanf(text, "%15s %2047s", word, path);
  if (!strcmp(word, "crash")) raise(SIGSEGV);
  // says that it has begun, and which process it is; "once" does not hang where that has been said already
  if (!strcmp(word, "hang") || (!strcmp(word, "once") && access(path, F_OK))) {
    memset(malloc(1 << 27), 1, 1 << 27);  // what has much memory takes a while to end
    FILE* file = fopen(path, "w");
    fprintf(file, "%d %d\n", getpid(), getppid());
    fclose(file);
    for (;;) sleep(1000);
  }
  if (!strcmp(word, "meet"))  // two programs that wait for each other
    for (strcat(path, count ? ".1" : ".0"), fclose(fopen(path, "w"));; usleep(10000)) {
      path[strlen(path) - 1] = count ? '0' : '1';
      if (!access(path, F_OK)) break;
    }
  sprintf(answer, "%d of %d", ++compiled, getppid());
  return 0;
}
#define READ(what, value)                                                                            \
  int nvrtcGet##what##Size(void* program, size_t* size) { return *size = strlen(value) + 1, 0; }     \
  int nvrtcGet##what(void* program, char* out) { return strcpy(out, value), 0; }
READ(ProgramLog, "")
READ(PTX, answer)
READ(CUBIN, "")
int nvrtcDestroyProgram(void** program) { return 0; }

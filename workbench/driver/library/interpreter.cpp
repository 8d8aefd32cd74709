// Python for a program that is a process of its own. Under `workbench run` its first CUDA call
// starts an interpreter in a thread, which starts the driver (workbench/programs/embedded.py) and
// serves its hooks until the process ends. In a process that already runs Python the driver starts
// at once.
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <clocale>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "driver.hpp"

namespace workbench::driver {
namespace {

constexpr std::array kTakenOver{SIGINT, SIGPIPE, SIGXFSZ};  // Python sets these when it starts

enum class Stage : u8 { starting, serving, ending, ended };

// Never destroyed: the interpreter's thread waits here while the process runs its destructors.
struct Interpreter {
  std::mutex mutex;
  std::condition_variable changed;
  Stage stage = Stage::starting;
  int status = 0;
  std::string said;  // message of the ending thread's latest failing call
  pid_t process = getpid();
  std::array<struct sigaction, kTakenOver.size()> actions{};
  std::string locale = std::setlocale(LC_CTYPE, nullptr);
};

Interpreter* interpreter = nullptr;

template <class Function>
Function function_in(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

// Restores the program's own signal handlers and locale after Python has started.
void give_back(const Interpreter& one) {
  for (std::size_t i = 0; i < kTakenOver.size(); ++i)
    sigaction(kTakenOver[i], &one.actions[i], nullptr);
  std::setlocale(LC_CTYPE, one.locale.c_str());
}

// Lets the interpreter print its report. Handlers that were registered earlier run after this one,
// and may still call the driver.
void end_program(int status, void*) {
  Interpreter& one = *interpreter;
  // A fork: the parent prints the report.
  if (one.process != getpid()) return;
  std::unique_lock lock(one.mutex);
  if (one.stage != Stage::serving) return;
  one.status = status;
  if (const ThreadState* thread = thread_state()) one.said = thread->latest;
  one.stage = Stage::ending;
  one.changed.notify_all();
  one.changed.wait(lock, [&] { return one.stage == Stage::ended; });
}

void run_python(void* library, std::string python) {
  using Main = int (*)(int count, char** words);
  std::string safe = "-P", module = "-m", name = "workbench.programs.embedded";
  std::array<char*, 5> words{python.data(), safe.data(), module.data(), name.data(), nullptr};
  function_in<Main>(library, "Py_BytesMain")(4, words.data());
  std::lock_guard lock(interpreter->mutex);
  interpreter->stage = Stage::ended;
  interpreter->changed.notify_all();
}

std::string embed(const char* path, const char* python) {
  void* library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!library) return std::string("Python's library cannot be loaded: ") + dlerror();
  interpreter = new Interpreter;
  for (std::size_t i = 0; i < kTakenOver.size(); ++i)
    sigaction(kTakenOver[i], nullptr, &interpreter->actions[i]);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the program's own threads
  std::thread(run_python, library, std::string(python)).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  std::unique_lock lock(interpreter->mutex);
  interpreter->changed.wait(lock, [] { return interpreter->stage != Stage::starting; });
  if (interpreter->stage == Stage::ended) return "Python did not start the driver: see stderr";
  on_exit(end_program, nullptr);
  return "";
}

// Starts the driver in a process that runs Python. Returns false in any other.
bool join_python() {
  const auto started = function_in<int (*)()>(RTLD_DEFAULT, "Py_IsInitialized");
  if (!started || !started()) return false;
  const auto ensure = function_in<int (*)()>(RTLD_DEFAULT, "PyGILState_Ensure");
  const auto run = function_in<int (*)(const char*)>(RTLD_DEFAULT, "PyRun_SimpleString");
  const auto release = function_in<void (*)(int)>(RTLD_DEFAULT, "PyGILState_Release");
  const int held = ensure();
  // A Python without the workbench, such as a compiler's helper, finds a driver that was not
  // started.
  run("try:\n  from workbench.programs.running import join_run\n"
      "except ModuleNotFoundError:\n  pass\nelse:\n  join_run()");
  release(held);
  return true;
}

std::string start() {
  if (!std::getenv("WORKBENCH_RUN") || std::getenv("WORKBENCH_NURSERY") || join_python()) return "";
  const char* const library = std::getenv("WORKBENCH_LIBPYTHON");
  const char* const python = std::getenv("WORKBENCH_PYTHON");
  const std::string why = library && python
                              ? embed(library, python)
                              : "a program that another linker linked needs a Python with a shared "
                                "library; link it with the nvcc of workbench run";
  if (!why.empty()) std::fprintf(stderr, "workbench: %s\n", why.c_str());
  return why;
}

}  // namespace

void start_interpreter() {
  static std::once_flag once;
  static std::string why;
  std::call_once(once, [] { why = start(); });
  if (!why.empty()) throw Refused{CUDA_ERROR_NOT_INITIALIZED, why};
}

}  // namespace workbench::driver

using namespace workbench::driver;

// Called by the interpreter's thread once the driver has started; never returns. Calls `end` with
// the program's exit status and the driver's latest message.
extern "C" __attribute__((visibility("default"))) void workbench_driver_serve(
    void (*end)(int, const char*)) {
  Interpreter& one = *interpreter;
  give_back(one);
  std::unique_lock lock(one.mutex);
  one.stage = Stage::serving;
  one.changed.notify_all();
  one.changed.wait(lock, [&] { return one.stage == Stage::ending; });
  lock.unlock();
  end(one.status, one.said.c_str());
  lock.lock();
  one.stage = Stage::ended;
  one.changed.notify_all();
  lock.unlock();
  for (;;) pause();
}

// What a kernel has with FAULT, and without.
#ifdef FAULT
#define ORDER(x)
#define VALUE(right, wrong) (wrong)
#else
#define ORDER(x) x
#define VALUE(right, wrong) (right)
#endif

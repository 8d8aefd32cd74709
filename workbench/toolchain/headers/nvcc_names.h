#pragma once
// What nvcc declares without an #include, through the C library's headers that its own pull in, beside what stands in
// stdint.h, stddef.h, limits.h, float.h and math.h. `workbench.toolchain.nvcc_names` takes from it what a source names.
// Types and values are those that nvcc 13.0 has on Linux; long double is double in device code.
#define ADJ_ESTERROR 8
#define ADJ_FREQUENCY 2
#define ADJ_MAXERROR 4
#define ADJ_MICRO 4096
#define ADJ_NANO 8192
#define ADJ_OFFSET 1
#define ADJ_OFFSET_SINGLESHOT 32769
#define ADJ_OFFSET_SS_READ 40961
#define ADJ_SETOFFSET 256
#define ADJ_STATUS 16
#define ADJ_TAI 128
#define ADJ_TICK 16384
#define ADJ_TIMECONST 32
#define AIO_PRIO_DELTA_MAX 20
#define BC_BASE_MAX 99
#define BC_DIM_MAX 2048
#define BC_SCALE_MAX 99
#define BC_STRING_MAX 1000
#define BIG_ENDIAN 4321
#define BOOL_MAX 1
#define BOOL_WIDTH 1
#define BUFSIZ 8192
#define BYTE_ORDER 1234
#define CHARCLASS_NAME_MAX 2048
#define CHAR_WIDTH 8
#define CLOCKS_PER_SEC 1000000L
#define CLOCK_BOOTTIME 7
#define CLOCK_BOOTTIME_ALARM 9
#define CLOCK_MONOTONIC 1
#define CLOCK_MONOTONIC_COARSE 6
#define CLOCK_MONOTONIC_RAW 4
#define CLOCK_PROCESS_CPUTIME_ID 2
#define CLOCK_REALTIME 0
#define CLOCK_REALTIME_ALARM 8
#define CLOCK_REALTIME_COARSE 5
#define CLOCK_TAI 11
#define CLOCK_THREAD_CPUTIME_ID 3
#define COLL_WEIGHTS_MAX 255
#define DELAYTIMER_MAX 2147483647
#define EOF (-1)
#define EXIT_FAILURE 1
#define EXIT_SUCCESS 0
#define EXPR_NEST_MAX 32
#define FD_SETSIZE 1024
#define FILENAME_MAX 4096
#define FOPEN_MAX 16
#define FP_ILOGB0 (-2147483647 - 1)
#define FP_ILOGBNAN (-2147483647 - 1)
#define FP_INFINITE 1
#define FP_INT_DOWNWARD 1
#define FP_INT_TONEAREST 4
#define FP_INT_TONEARESTFROMZERO 3
#define FP_INT_TOWARDZERO 2
#define FP_INT_UPWARD 0
#define FP_LLOGB0 (-9223372036854775807L - 1)
#define FP_LLOGBNAN (-9223372036854775807L - 1)
#define FP_NAN 0
#define FP_NORMAL 4
#define FP_SUBNORMAL 3
#define FP_ZERO 2
#define HOST_NAME_MAX 64
#define INT_WIDTH 32
#define IOV_MAX 1024
#define LINE_MAX 2048
#define LITTLE_ENDIAN 1234
#define LLONG_WIDTH 64
#define LOGIN_NAME_MAX 256
#define LONG_BIT 64
#define LONG_LONG_MAX 9223372036854775807LL
#define LONG_LONG_MIN (-9223372036854775807LL - 1)
#define LONG_WIDTH 64
#define L_ctermid 9
#define L_cuserid 9
#define L_tmpnam 20
#define MATH_ERREXCEPT 2
#define MATH_ERRNO 1
#define MAXFLOAT 3.40282347e+38F
#define MAX_CANON 255
#define MAX_INPUT 255
#define MB_LEN_MAX 16
#define MOD_CLKA 32769
#define MOD_CLKB 16384
#define MOD_ESTERROR 8
#define MOD_FREQUENCY 2
#define MOD_MAXERROR 4
#define MOD_MICRO 4096
#define MOD_NANO 8192
#define MOD_OFFSET 1
#define MOD_STATUS 16
#define MOD_TAI 128
#define MOD_TIMECONST 32
#define MQ_PRIO_MAX 32768
#define M_1_PI 0.31830988618379067154
#define M_1_PIf 0.31830988618379067154F
#define M_1_PIl 0.318309886183790671537767526745028724
#define M_2_PI 0.63661977236758134308
#define M_2_PIf 0.63661977236758134308F
#define M_2_PIl 0.636619772367581343075535053490057448
#define M_2_SQRTPI 1.12837916709551257390
#define M_2_SQRTPIf 1.12837916709551257390F
#define M_2_SQRTPIl 1.128379167095512573896158903121545172
#define M_E 2.7182818284590452354
#define M_Ef 2.7182818284590452354F
#define M_El 2.718281828459045235360287471352662498
#define M_LN10 2.30258509299404568402
#define M_LN10f 2.30258509299404568402F
#define M_LN10l 2.302585092994045684017991454684364208
#define M_LN2 0.69314718055994530942
#define M_LN2f 0.69314718055994530942F
#define M_LN2l 0.693147180559945309417232121458176568
#define M_LOG10E 0.43429448190325182765
#define M_LOG10Ef 0.43429448190325182765F
#define M_LOG10El 0.434294481903251827651128918916605082
#define M_LOG2E 1.4426950408889634074
#define M_LOG2Ef 1.4426950408889634074F
#define M_LOG2El 1.442695040888963407359924681001892137
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_2f 1.57079632679489661923F
#define M_PI_2l 1.570796326794896619231321691639751442
#define M_PI_4 0.78539816339744830962
#define M_PI_4f 0.78539816339744830962F
#define M_PI_4l 0.785398163397448309615660845819875721
#define M_PIf 3.14159265358979323846F
#define M_PIl 3.141592653589793238462643383279502884
#define M_SQRT1_2 0.70710678118654752440
#define M_SQRT1_2f 0.70710678118654752440F
#define M_SQRT1_2l 0.707106781186547524400844362104849039
#define M_SQRT2 1.41421356237309504880
#define M_SQRT2f 1.41421356237309504880F
#define M_SQRT2l 1.414213562373095048801688724209698079
#define NAME_MAX 255
#define NFDBITS 64
#define NGROUPS_MAX 65536
#define NL_ARGMAX 4096
#define NL_LANGMAX 2048
#define NL_MSGMAX 2147483647
#define NL_NMAX 2147483647
#define NL_SETMAX 2147483647
#define NL_TEXTMAX 2147483647
#define NZERO 20
#define PATH_MAX 4096
#define PDP_ENDIAN 3412
#define PIPE_BUF 4096
#define PTHREAD_DESTRUCTOR_ITERATIONS 4
#define PTHREAD_KEYS_MAX 1024
#define PTHREAD_STACK_MIN 16384L
#define RAND_MAX 2147483647
#define RENAME_EXCHANGE 2
#define RENAME_NOREPLACE 1
#define RENAME_WHITEOUT 4
#define RE_DUP_MAX 32767
#define RTSIG_MAX 32
#define SCHAR_WIDTH 8
#define SEEK_CUR 1
#define SEEK_DATA 3
#define SEEK_END 2
#define SEEK_HOLE 4
#define SEEK_SET 0
#define SEM_VALUE_MAX 2147483647
#define SHRT_WIDTH 16
#define SSIZE_MAX 9223372036854775807L
#define STA_CLK 32768
#define STA_CLOCKERR 4096
#define STA_DEL 32
#define STA_FLL 8
#define STA_FREQHOLD 128
#define STA_INS 16
#define STA_MODE 16384
#define STA_NANO 8192
#define STA_PLL 1
#define STA_PPSERROR 2048
#define STA_PPSFREQ 2
#define STA_PPSJITTER 512
#define STA_PPSSIGNAL 256
#define STA_PPSTIME 4
#define STA_PPSWANDER 1024
#define STA_RONLY 65280
#define STA_UNSYNC 64
#define TIMER_ABSTIME 1
#define TIME_UTC 1
#define TMP_MAX 238328
#define TTY_NAME_MAX 32
#define UCHAR_WIDTH 8
#define UINT_WIDTH 32
#define ULLONG_WIDTH 64
#define ULONG_LONG_MAX 18446744073709551615ULL
#define ULONG_WIDTH 64
#define USHRT_WIDTH 16
#define WCONTINUED 8
#define WEXITED 4
#define WNOHANG 1
#define WNOWAIT 16777216
#define WORD_BIT 32
#define WSTOPPED 2
#define WUNTRACED 2
#define XATTR_LIST_MAX 65536
#define XATTR_NAME_MAX 255
#define XATTR_SIZE_MAX 65536
#define math_errhandling 3
typedef long blkcnt64_t;
typedef long blkcnt_t;
typedef long blksize_t;
typedef int clockid_t;
typedef int daddr_t;
typedef unsigned long dev_t;
typedef double double_t;
typedef long fd_mask;
typedef float float_t;
typedef unsigned long fsblkcnt64_t;
typedef unsigned long fsblkcnt_t;
typedef unsigned long fsfilcnt64_t;
typedef unsigned long fsfilcnt_t;
typedef unsigned int gid_t;
typedef unsigned int id_t;
typedef unsigned long ino64_t;
typedef unsigned long ino_t;
typedef int key_t;
typedef long loff_t;
typedef unsigned int mode_t;
typedef unsigned long nlink_t;
typedef long off64_t;
typedef long off_t;
typedef int pid_t;
typedef unsigned int pthread_key_t;
typedef int pthread_once_t;
typedef int pthread_spinlock_t;
typedef unsigned long pthread_t;
typedef long quad_t;
typedef long ssize_t;
typedef long suseconds_t;
typedef long time_t;
typedef unsigned char u_char;
typedef unsigned int u_int;
typedef unsigned short u_int16_t;
typedef unsigned int u_int32_t;
typedef unsigned long u_int64_t;
typedef unsigned char u_int8_t;
typedef unsigned long u_long;
typedef unsigned long u_quad_t;
typedef unsigned short u_short;
typedef unsigned int uid_t;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef unsigned int useconds_t;
typedef unsigned short ushort;

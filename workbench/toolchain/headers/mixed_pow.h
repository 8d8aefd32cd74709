#pragma once
// nvcc takes pow() of any two numbers, through the host's <cmath>, as double where NVRTC has no overload for both.
namespace workbench_detail {
template <typename T, typename R> struct if_number {};
template <typename R> struct if_number<float, R> { typedef R type; };
template <typename R> struct if_number<double, R> { typedef R type; };
template <typename R> struct if_number<char, R> { typedef R type; };
template <typename R> struct if_number<signed char, R> { typedef R type; };
template <typename R> struct if_number<unsigned char, R> { typedef R type; };
template <typename R> struct if_number<short, R> { typedef R type; };
template <typename R> struct if_number<unsigned short, R> { typedef R type; };
template <typename R> struct if_number<int, R> { typedef R type; };
template <typename R> struct if_number<unsigned int, R> { typedef R type; };
template <typename R> struct if_number<long, R> { typedef R type; };
template <typename R> struct if_number<unsigned long, R> { typedef R type; };
template <typename R> struct if_number<long long, R> { typedef R type; };
template <typename R> struct if_number<unsigned long long, R> { typedef R type; };
}
template <typename A, typename B>
__device__ inline typename workbench_detail::if_number<A, typename workbench_detail::if_number<B, double>::type>::type
pow(A base, B exponent)
{
    return pow((double)base, (double)exponent);
}

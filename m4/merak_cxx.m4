# MERAK_CHECK_CXX
# A C++17 compiler for the machine that CC compiles for, for the test that runs
# the CUDA kernels' bodies on the host; nothing else is C++.  Sets HAVE_CXX and
# merak_cxx, for the summary.
AC_DEFUN([MERAK_CHECK_CXX], [
  AC_LANG_PUSH([C++])
  merak_saved_CXXFLAGS=$CXXFLAGS
  CXXFLAGS="$CXXFLAGS -std=gnu++17"
  AC_CACHE_CHECK([whether $CXX compiles C++17 for this host], [merak_cv_cxx],
    [merak_cv_cxx=no
     AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[]],
       [[if constexpr (sizeof(int) > 1) return 0;]])],
       # "x86_64" of x86_64-linux-gnu: where one compiles for another machine,
       # configure may have found the C++ compiler of this one
       [merak_cc_machine=`$CC -dumpmachine 2>/dev/null`
        merak_cxx_machine=`$CXX -dumpmachine 2>/dev/null`
        AS_IF([test "x${merak_cc_machine%%-*}" = "x${merak_cxx_machine%%-*}"],
          [merak_cv_cxx=yes])])])
  CXXFLAGS=$merak_saved_CXXFLAGS
  AC_LANG_POP([C++])
  AM_CONDITIONAL([HAVE_CXX], [test "x$merak_cv_cxx" = xyes])
  AS_IF([test "x$merak_cv_cxx" = xyes],
    [merak_cxx="kernels tested with $CXX"],
    [merak_cxx="not tested: no C++17 compiler"])
])

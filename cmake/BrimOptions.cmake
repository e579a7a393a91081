# Compiler flags, options and the parts from others.
option(BRIM_TESTS "build the tests" ON)
option(BRIM_FUZZ "build the libFuzzer targets too (clang, with BRIM_SANITIZE=address,undefined)" OFF)
option(BRIM_CCACHE "compile through ccache where it is installed" ON)
option(BRIM_CUDA "build the CUDA plug-in where nvcc is found" ON)
option(BRIM_CPU "build the oneDNN plug-in where oneDNN is found" ON)
option(BRIM_MPI "build the MPI plug-in where MPI is found" ON)
option(BRIM_RELOCATABLE "find bundled libraries beside the program (make dist)" OFF)
set(BRIM_SANITIZE "" CACHE STRING "sanitizers: address,undefined or thread")
set(BRIM_CUDA_ARCHS "80;86;89;90" CACHE STRING "GPU architectures; the last also as PTX")
set(BRIM_CUDA_FOR "" CACHE STRING "what tools/build was asked for: all, none, numbers; here: what this machine has")
option(BRIM_CUDA_QUICK "compile GPU code without optimisation, to check it" OFF)

# lib, never lib64 or lib/<triplet>: bin/brim looks for its plug-ins in ../lib/brim.
set(CMAKE_INSTALL_LIBDIR lib CACHE PATH "where libraries go under the prefix")
include(GNUInstallDirs)
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Sanitize: fast enough to run the tests, line numbers enough to read a stack.
set(CMAKE_C_FLAGS_SANITIZE "-O1 -g1")
# Asserts stay on: what is tested is what is shipped. -g1 names functions and lines in a stack and compiles in four
# fifths of the time of -g. For a debugger that shows variables: cmake -DCMAKE_BUILD_TYPE=Debug.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
# The build tree has the shape of an installation: bin/brim finds ../lib/brim/*.so in both.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/brim)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

set(BRIM_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wvla -Wformat-security -Werror)
add_compile_definitions(_GNU_SOURCE BRIM_VERSION="${PROJECT_VERSION}")
# Paths in messages and debug information do not depend on where the checkout lies.
add_compile_options($<$<COMPILE_LANGUAGE:C>:-ffp-contract=off>
                    $<$<COMPILE_LANGUAGE:C>:-fno-omit-frame-pointer>
                    $<$<COMPILE_LANGUAGE:C>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>)
# A library that lacks a symbol fails to link. Not so with clang's sanitizers, whose runtime is in the
# program alone.
set(BRIM_NO_UNDEFINED -Wl,--no-undefined)
if(BRIM_SANITIZE)
  if(CMAKE_C_COMPILER_ID MATCHES Clang)
    set(BRIM_NO_UNDEFINED "")
    add_compile_options(-Wno-pass-failed)  # checked loops do not vectorise
    find_program(BRIM_LLD ld.lld)
    mark_as_advanced(BRIM_LLD)
    if(BRIM_LLD)
      add_link_options(-fuse-ld=lld)  # hundreds of tests link in a third of the time
    endif()
  endif()
  add_compile_options(-fsanitize=${BRIM_SANITIZE} -fno-sanitize-recover=all)
  if(BRIM_SANITIZE MATCHES undefined AND CMAKE_C_COMPILER_ID MATCHES Clang)
    # Of it only "zero offset to a null pointer" was ever reported, which C2y allows.
    add_compile_options(-fno-sanitize=pointer-overflow)
  endif()
  add_link_options(-fsanitize=${BRIM_SANITIZE})
endif()

if(BRIM_RELOCATABLE)
  # DT_RPATH, not DT_RUNPATH: it also serves what the bundled libraries need themselves.
  add_link_options(-Wl,--disable-new-dtags)
  set(CMAKE_BUILD_RPATH "$ORIGIN/../lib")
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(ZLIB REQUIRED)
# Debian's serial HDF5 has a name of its own, since the parallel ones are there too.
pkg_search_module(HDF5 REQUIRED IMPORTED_TARGET hdf5-serial hdf5)
pkg_check_modules(JPEG REQUIRED IMPORTED_TARGET libjpeg)
pkg_check_modules(PNG REQUIRED IMPORTED_TARGET libpng)
pkg_check_modules(WEBP IMPORTED_TARGET libwebp)
if(NOT WEBP_FOUND)
  message(STATUS "brim: without libwebp: no WebP images (install libwebp-dev)")
endif()
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
# 3.37 has STRICT tables (docs/decisions/0037).
pkg_check_modules(SQLITE IMPORTED_TARGET sqlite3>=3.37)
if(NOT SQLITE_FOUND)
  message(FATAL_ERROR "brim sweep keeps its experiments in SQLite, and SQLite 3.37 or later was not "
                      "found. Install libsqlite3-dev (`tools/deps build` does).")
endif()
# Their headers alone: both are loaded when a server or a client is opened.
pkg_check_modules(MHD REQUIRED libmicrohttpd>=0.9.75)
pkg_check_modules(CURL REQUIRED libcurl>=7.85)
include(BrimCuda)
if(BRIM_CCACHE)
  find_program(BRIM_CCACHE_PROGRAM ccache)
  mark_as_advanced(BRIM_CCACHE_PROGRAM)
  foreach(language C CXX CUDA)
    if(BRIM_CCACHE_PROGRAM AND NOT CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER ${BRIM_CCACHE_PROGRAM})
    endif()
  endforeach()
endif()
# The names of the tests that start threads, as one expression.
file(STRINGS ${PROJECT_SOURCE_DIR}/tools/sanitize/tsan_tests.txt BRIM_THREADED_TESTS REGEX "^[^#]")
list(JOIN BRIM_THREADED_TESTS "|" BRIM_THREADED_TESTS)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS tools/sanitize/tsan_tests.txt)

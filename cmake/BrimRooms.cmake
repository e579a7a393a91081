# brim_room(NAME SOURCES a.c ... LINKS base ... EXTERNAL PkgConfig::X ...)
#   static library brim_<NAME> from this folder's files, linked only to the rooms named.
# brim_plugin(NAME SOURCES ... LINKS ... EXTERNAL ...)
#   loadable module lib/brim/libbrim_<NAME>.so that exports brim_plugin_query and nothing else.
# brim_test(NAME SOURCES ... LINKS rooms... [LABELS x] [TIMEOUT s] [ARGS ...] [BUILD_DIR folder]
#           [UNDER command] [OPTIMIZE])
#   a cmocka program, run by ctest in its own working folder; BUILD_DIR has other plug-ins than ours.
#   UNDER is a command that starts the program, given after it.
#   OPTIMIZE is for programs that compute much themselves; the others compile faster without.
# brim_test_add(NAME [LABELS x] [TIMEOUT s] [ENVIRONMENT ...] COMMAND ...)
#   any command as a test in its own working folder; exit code 77 and "skipped: why" skip it.
# brim_test_missing(NAME WHY)
#   a test that cannot be built here: ctest reports it as skipped, with the reason.

function(brim_room name)
  cmake_parse_arguments(A "" "" "SOURCES;LINKS;EXTERNAL" ${ARGN})
  add_library(brim_${name} STATIC ${A_SOURCES})
  target_include_directories(brim_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_compile_options(brim_${name} PRIVATE ${BRIM_WARNINGS})
  foreach(room ${A_LINKS})
    target_link_libraries(brim_${name} PUBLIC brim_${room})
  endforeach()
  target_link_libraries(brim_${name} PUBLIC ${A_EXTERNAL})
  # Coverage for the fuzzers where the parsers are; it would slow the loops of the other rooms.
  if(BRIM_FUZZ AND name MATCHES "^(base|config|engine|data|lab)$")
    target_compile_options(brim_${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

function(brim_plugin name)
  cmake_parse_arguments(A "" "" "SOURCES;LINKS;EXTERNAL" ${ARGN})
  set(map ${PROJECT_SOURCE_DIR}/cmake/plugin.map)
  add_library(brim_${name} MODULE ${A_SOURCES})
  target_include_directories(brim_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_compile_options(brim_${name} PRIVATE "$<$<COMPILE_LANGUAGE:C>:${BRIM_WARNINGS}>")
  foreach(room ${A_LINKS})
    target_link_libraries(brim_${name} PRIVATE brim_${room})
  endforeach()
  target_link_libraries(brim_${name} PRIVATE ${A_EXTERNAL})
  target_link_options(brim_${name} PRIVATE -Wl,--version-script=${map} ${BRIM_NO_UNDEFINED})
  set_target_properties(brim_${name} PROPERTIES LINK_DEPENDS ${map})
endfunction()

# Every time limit, as name and seconds; tests/limits scales them when ctest starts.
define_property(GLOBAL PROPERTY BRIM_TEST_LIMITS BRIEF_DOCS "time limits" FULL_DOCS "name=seconds")
set(BRIM_TEST_TIMEOUT 300)  # seconds, where a test names none; load may rise after ctest began
set(BRIM_SANITIZER_SLOWDOWN 10)

function(brim_test_limit name seconds)
  if(NOT seconds)
    set(seconds ${BRIM_TEST_TIMEOUT})
  endif()
  if(BRIM_SANITIZE)
    math(EXPR seconds "${seconds} * ${BRIM_SANITIZER_SLOWDOWN}")
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${seconds})
  set_property(GLOBAL APPEND PROPERTY BRIM_TEST_LIMITS ${name}=${seconds})
endfunction()

function(brim_test_add name)
  cmake_parse_arguments(A "" "TIMEOUT;FOLDER" "LABELS;ENVIRONMENT;COMMAND" ${ARGN})
  if(NOT A_FOLDER)
    set(A_FOLDER ${PROJECT_BINARY_DIR}/tests/run/${name})
    file(MAKE_DIRECTORY ${A_FOLDER})
  endif()
  add_test(NAME ${name} COMMAND ${A_COMMAND} WORKING_DIRECTORY ${A_FOLDER})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 ENVIRONMENT "${A_ENVIRONMENT}")
  brim_test_limit(${name} "${A_TIMEOUT}")
  if(A_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${A_LABELS}")
  endif()
  # The long ones start first, also in a tree where nothing was timed yet: no core waits for the last one.
  if(A_LABELS MATCHES "full|slow")
    set_tests_properties(${name} PROPERTIES COST 100)
  endif()
endfunction()

function(brim_test_missing name why)
  message(STATUS "tests: ${name} left out, ${why}")
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${why}")
  set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped: ")
endfunction()

function(brim_test name)
  cmake_parse_arguments(A "OPTIMIZE" "TIMEOUT;BUILD_DIR;UNDER" "SOURCES;LINKS;LABELS;ARGS;ENVIRONMENT"
                        ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
                             ${PROJECT_SOURCE_DIR}/tests)
  target_compile_options(${name} PRIVATE ${BRIM_WARNINGS})
  if(NOT A_OPTIMIZE)
    target_compile_options(${name} PRIVATE -O0)
  endif()
  # The threaded tests are all that ThreadSanitizer runs: the others are built only when asked for.
  if(BRIM_SANITIZE STREQUAL thread AND NOT name MATCHES "${BRIM_THREADED_TESTS}")
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
  endif()
  set(build_dir ${PROJECT_BINARY_DIR})
  if(BRIM_RELOCATABLE)
    set(build_dir ..)  # run from dist/brim/tests, beside bin/ and lib/
  endif()
  if(A_BUILD_DIR)
    set(build_dir ${A_BUILD_DIR})
  endif()
  target_compile_definitions(${name} PRIVATE BRIM_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                             BRIM_BUILD_DIR="${build_dir}")
  foreach(room ${A_LINKS})
    target_link_libraries(${name} PRIVATE brim_${room})
    if(room MATCHES "^(data|workload|run|measure|tune|lib|cli)$" AND TARGET brim_hdf5_helper)
      add_dependencies(${name} brim_hdf5_helper)  # sources of HDF5 files start it
    endif()
  endforeach()
  target_link_libraries(${name} PRIVATE PkgConfig::CMOCKA)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  # The program as a child over and over: too slow for the quick sanitizer round.
  if(name MATCHES "^test_e2e_" AND NOT "slow" IN_LIST A_LABELS)
    list(APPEND A_LABELS slow)
  endif()
  brim_test_add(${name} LABELS ${A_LABELS} TIMEOUT ${A_TIMEOUT} ENVIRONMENT ${A_ENVIRONMENT}
                COMMAND ${A_UNDER} $<TARGET_FILE:${name}> ${A_ARGS})
endfunction()

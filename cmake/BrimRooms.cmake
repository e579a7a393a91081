# brim_room(NAME [COLD] SOURCES a.c ... LINKS base ... EXTERNAL PkgConfig::X ...)
#   static library brim_<NAME> from this folder's files, linked only to the rooms named. COLD rooms have no loops
#   over samples, weights or environments: they compile with less optimisation, in three quarters of the time.
# brim_plugin(NAME SOURCES ... LINKS ... EXTERNAL ...)
#   loadable module lib/brim/libbrim_<NAME>.so that exports brim_plugin_query and nothing else.
# brim_test(NAME SOURCES main.c ... LINKS rooms... [EXTERNAL libraries...] [DEFINITIONS X=1 ...] [LABELS x]
#           [TIMEOUT s] [ARGS ...] [BUILD_DIR folder] [UNDER command] [OPTIMIZE] [ALONE])
#   cmocka tests, run by ctest in a working folder of their own. The tests of a folder are linked into one
#   program, build/tests/<folder>_tests; build/tests/<NAME> is a link to it, and the link's name says which
#   of its main functions runs. The first source has the main function; other sources may be shared.
#   BUILD_DIR has other plug-ins than ours. UNDER is a command that starts the program, given after it.
#   OPTIMIZE is for tests that compute much themselves; the others compile faster without.
#   ALONE is for tests that change what they are linked with (--wrap, a library's own sources, headers of
#   others): a program of their own, and an ordinary target.
# brim_test_add(NAME [LABELS x] [TIMEOUT s] [ENVIRONMENT ...] COMMAND ...)
#   any command as a test in its own working folder; exit code 77 and "skipped: why" skip it.
# brim_test_missing(NAME WHY)
#   a test that cannot be built here: ctest reports it as skipped, with the reason.

function(brim_room name)
  cmake_parse_arguments(A "COLD" "" "SOURCES;LINKS;EXTERNAL" ${ARGN})
  add_library(brim_${name} STATIC ${A_SOURCES})
  target_include_directories(brim_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_compile_options(brim_${name} PRIVATE ${BRIM_WARNINGS})
  if(A_COLD)
    target_compile_options(brim_${name} PRIVATE $<IF:$<CONFIG:Sanitize>,-O0,$<$<CONFIG:Release,RelWithDebInfo>:-O1>>)
  endif()
  foreach(room ${A_LINKS})
    target_link_libraries(brim_${name} PUBLIC brim_${room})
  endforeach()
  target_link_libraries(brim_${name} PUBLIC ${A_EXTERNAL})
  # Coverage for the fuzzers where the parsers are; it would slow the loops of the other rooms.
  if(BRIM_FUZZ AND name MATCHES "^(base|config|engine|data|lab_wire)$")
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
  # test_cost writes down what the test cost, for tools/test.
  add_test(NAME ${name} COMMAND test_cost ${name} ${A_COMMAND} WORKING_DIRECTORY ${A_FOLDER})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 ENVIRONMENT "${A_ENVIRONMENT}")
  brim_test_limit(${name} "${A_TIMEOUT}")
  if(A_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${A_LABELS}")
  endif()
  # The long ones start first, also in a tree where nothing was timed yet: no core waits for the last one.
  if(A_LABELS MATCHES "waits")
    set_tests_properties(${name} PROPERTIES COST 200)
  elseif(A_LABELS MATCHES "full|slow")
    set_tests_properties(${name} PROPERTIES COST 100)
  endif()
endfunction()

function(brim_test_missing name why)
  message(STATUS "tests: ${name} left out, ${why}")
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${why}")
  set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped: ")
endfunction()

# Where the test programs lie, for commands.
set(BRIM_TEST_PROGRAMS ${PROJECT_BINARY_DIR}/tests)
define_property(TARGET PROPERTY BRIM_TEST_MAINS BRIEF_DOCS "tests" FULL_DOCS "BRIM_TEST_MAIN(test, function)")

# What all programs of tests are compiled with.
function(brim_test_program name build_dir)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
                             ${PROJECT_SOURCE_DIR}/tests)
  target_compile_options(${name} PRIVATE ${BRIM_WARNINGS})
  if(BRIM_RELOCATABLE)
    set(build_dir ..)  # run from dist/brim/tests, beside bin/ and lib/
  endif()
  target_compile_definitions(${name} PRIVATE BRIM_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                             BRIM_BUILD_DIR="${build_dir}")
  target_link_libraries(${name} PRIVATE PkgConfig::CMOCKA)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${BRIM_TEST_PROGRAMS})
endfunction()

function(brim_test name)
  cmake_parse_arguments(A "OPTIMIZE;ALONE" "TIMEOUT;BUILD_DIR;UNDER"
                        "SOURCES;LINKS;EXTERNAL;DEFINITIONS;LABELS;ARGS;ENVIRONMENT" ${ARGN})
  # The threaded tests are all that ThreadSanitizer runs: the others are built only when asked for.
  set(left_out OFF)
  if(BRIM_SANITIZE STREQUAL thread AND NOT name MATCHES "${BRIM_THREADED_TESTS}")
    set(left_out ON)
  endif()
  set(optimize -O0)
  if(A_OPTIMIZE)
    set(optimize -O1 -g1)  # the headers of environments take half the time to compile
  endif()
  if(A_ALONE)
    set(program ${name})
    add_executable(${name} ${A_SOURCES})
    if(A_BUILD_DIR)
      brim_test_program(${name} ${A_BUILD_DIR})
    else()
      brim_test_program(${name} ${PROJECT_BINARY_DIR})
    endif()
    target_compile_options(${name} PRIVATE ${optimize})
    target_compile_definitions(${name} PRIVATE ${A_DEFINITIONS})
    target_compile_options(${name} PRIVATE -Umain)  # where the folder's program has the source too
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ${left_out})
  else()
    if(A_BUILD_DIR)
      message(FATAL_ERROR "${name}: BUILD_DIR needs ALONE")
    endif()
    get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
    set(program ${folder}_tests)
    if(NOT TARGET ${program})
      set(list ${CMAKE_CURRENT_BINARY_DIR}/${program}.inc)
      add_executable(${program} ${BRIM_TEST_MAIN})
      brim_test_program(${program} ${PROJECT_BINARY_DIR})
      target_compile_definitions(${program} PRIVATE BRIM_TEST_LIST="${list}")
      set_target_properties(${program} PROPERTIES EXCLUDE_FROM_ALL ON)
      file(GENERATE OUTPUT ${list} CONTENT "$<JOIN:$<TARGET_PROPERTY:${program},BRIM_TEST_MAINS>,\n>\n")
    endif()
    add_custom_target(${name} DEPENDS ${program})
    file(CREATE_LINK ${program} ${BRIM_TEST_PROGRAMS}/${name} SYMBOLIC)
    list(GET A_SOURCES 0 source)
    get_filename_component(main ${source} NAME_WE)
    if(NOT left_out)
      set_target_properties(${program} PROPERTIES EXCLUDE_FROM_ALL OFF)
      set_property(TARGET ${program} APPEND PROPERTY BRIM_TEST_MAINS "BRIM_TEST_MAIN(${name}, main_of_${main})")
      get_target_property(there ${program} SOURCES)
      if(NOT source IN_LIST there)
        set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS "main=main_of_${main};${A_DEFINITIONS}")
      endif()
      foreach(source ${A_SOURCES})
        if(NOT source IN_LIST there)
          target_sources(${program} PRIVATE ${source})
          set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${optimize}")
        endif()
      endforeach()
    endif()
  endif()
  if(NOT left_out OR A_ALONE)
    get_target_property(linked ${program} LINK_LIBRARIES)
    foreach(library ${A_LINKS} ${A_EXTERNAL})
      if(library IN_LIST A_LINKS)
        if(library MATCHES "^(data|workload|run|measure|tune|lib|cli)$" AND TARGET brim_hdf5_helper)
          add_dependencies(${program} brim_hdf5_helper)  # sources of HDF5 files start it
        endif()
        set(library brim_${library})
      endif()
      if(NOT library IN_LIST linked)
        target_link_libraries(${program} PRIVATE ${library})
      endif()
    endforeach()
  endif()
  # The program as a child over and over: too slow for the quick sanitizer round, which runs a third of them.
  if(name MATCHES "^test_e2e_" AND NOT "slow" IN_LIST A_LABELS)
    list(APPEND A_LABELS slow)
  elseif(name MATCHES "^test_cli")
    list(APPEND A_LABELS process)
  endif()
  brim_test_add(${name} LABELS ${A_LABELS} TIMEOUT ${A_TIMEOUT} ENVIRONMENT ${A_ENVIRONMENT}
                COMMAND ${A_UNDER} ${BRIM_TEST_PROGRAMS}/${name} ${A_ARGS})
endfunction()

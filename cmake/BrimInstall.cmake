# What `make install` and `make dist` lay out under the prefix, and the target brim_installed that
# builds just that. Component `dist_tests` holds the test programs that a GPU machine wants.
include(CMakePackageConfigHelpers)

add_custom_target(brim_installed)
add_dependencies(brim_installed brim-make-idx)

if(TARGET brim)
  set_target_properties(brim PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS brim RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  add_dependencies(brim_installed brim)
  # Completion is what the program itself prints, in English for everybody on the machine.
  foreach(shell bash zsh)
    set(script ${PROJECT_BINARY_DIR}/completion/brim.${shell})
    add_custom_command(OUTPUT ${script}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/completion
      COMMAND $<TARGET_FILE:brim> --lang en completion ${shell} > ${script}.new
      COMMAND ${CMAKE_COMMAND} -E rename ${script}.new ${script}
      DEPENDS brim VERBATIM)
    list(APPEND BRIM_COMPLETION ${script})
  endforeach()
  # The English man page is in docs/; the Korean one is printed by the program, as a translation is.
  set(page ${PROJECT_BINARY_DIR}/man/ko/brim.1)
  add_custom_command(OUTPUT ${page}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/man/ko
    COMMAND $<TARGET_FILE:brim> --lang ko help --man > ${page}.new
    COMMAND ${CMAKE_COMMAND} -E rename ${page}.new ${page}
    DEPENDS brim VERBATIM)
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/ko/man1)
  add_custom_target(brim_completion ALL DEPENDS ${BRIM_COMPLETION} ${page})
  add_dependencies(brim_installed brim_completion)
  install(FILES ${PROJECT_BINARY_DIR}/completion/brim.bash
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME brim)
  install(FILES ${PROJECT_BINARY_DIR}/completion/brim.zsh
          DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _brim)
endif()

# The program that calls libhdf5 on files that may be damaged, beside the plug-ins.
if(TARGET brim_hdf5_helper)
  set_target_properties(brim_hdf5_helper PROPERTIES INSTALL_RPATH "$ORIGIN/..")
  install(TARGETS brim_hdf5_helper RUNTIME DESTINATION ${CMAKE_INSTALL_LIBDIR}/brim)
  add_dependencies(brim_installed brim_hdf5_helper)
  foreach(target brim brim_shared)
    if(TARGET ${target})
      add_dependencies(${target} brim_hdf5_helper)
    endif()
  endforeach()
endif()

if(TARGET brim_shared)
  add_dependencies(brim_installed brim_shared)
  install(TARGETS brim_shared EXPORT brimTargets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT devel
          INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/brim DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
          COMPONENT devel FILES_MATCHING PATTERN "*.h")
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/brim)
  install(EXPORT brimTargets NAMESPACE brim:: DESTINATION ${package_dir} COMPONENT devel)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/brimConfig.cmake.in
                                ${PROJECT_BINARY_DIR}/brimConfig.cmake
                                INSTALL_DESTINATION ${package_dir})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/brimConfigVersion.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/brimConfig.cmake ${PROJECT_BINARY_DIR}/brimConfigVersion.cmake
          DESTINATION ${package_dir} COMPONENT devel)
  # The prefix is found from the .pc file's own place, so it holds for any --prefix.
  file(RELATIVE_PATH BRIM_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/brim.pc.in ${PROJECT_BINARY_DIR}/brim.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/brim.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
          COMPONENT devel)
endif()

# Plug-ins: every loadable module that a room makes. BRIM_FOLDER of a target is its place under lib/brim, for
# one that not every brim opens.
foreach(room ${BRIM_ROOMS_PRESENT})
  get_property(targets DIRECTORY ${PROJECT_SOURCE_DIR}/src/${room} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    if(type STREQUAL MODULE_LIBRARY)
      set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/..")
      get_target_property(folder ${target} BRIM_FOLDER)
      if(NOT folder)
        set(folder "")
      endif()
      install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/brim/${folder})
      add_dependencies(brim_installed ${target})
    endif()
  endforeach()
endforeach()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs DESTINATION ${CMAKE_INSTALL_DATADIR}/brim
        FILES_MATCHING PATTERN "*.yaml")
foreach(doc LICENSE README.md README.ko.md CHANGELOG.md)
  if(EXISTS ${PROJECT_SOURCE_DIR}/${doc})
    install(FILES ${PROJECT_SOURCE_DIR}/${doc} DESTINATION ${CMAKE_INSTALL_DOCDIR})
  endif()
endforeach()
if(EXISTS ${PROJECT_SOURCE_DIR}/docs)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}
          COMPONENT devel FILES_MATCHING PATTERN "*.md")
endif()
if(EXISTS ${PROJECT_SOURCE_DIR}/docs/brim.1)
  install(FILES ${PROJECT_SOURCE_DIR}/docs/brim.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()

# Services for a server and its workers. systemd looks into /usr/lib and /usr/local/lib.
foreach(unit brim-serve brim-worker)
  configure_file(${PROJECT_SOURCE_DIR}/packaging/systemd/${unit}.service.in
                 ${PROJECT_BINARY_DIR}/systemd/${unit}.service @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/systemd/${unit}.service DESTINATION lib/systemd/system)
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/packaging/systemd/brim.sysusers DESTINATION lib/sysusers.d
        RENAME brim.conf)

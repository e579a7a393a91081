# brim_embed(OUT ROOT a/b.css ...)
#   writes the C file OUT when one of ROOT/a/b.css ... changed: their bytes, and the table
#   brim_web_assets of web_int.h over them. Run as a script (cmake -P) it is the generator itself.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(BRIM_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
  function(brim_embed out root)
    list(TRANSFORM ARGN PREPEND ${root}/ OUTPUT_VARIABLE paths)
    string(REPLACE ";" "," names "${ARGN}")
    add_custom_command(OUTPUT ${out}
      COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DROOT=${root} -DNAMES=${names} -P ${BRIM_EMBED_SCRIPT}
      DEPENDS ${paths} ${BRIM_EMBED_SCRIPT} VERBATIM)
  endfunction()
  return()
endif()

string(REPLACE "," ";" names "${NAMES}")
set(arrays "")
set(rows "")
set(index 0)
foreach(name ${names})
  file(READ ${ROOT}/${name} bytes HEX)
  string(LENGTH "${bytes}" digits)
  math(EXPR size "${digits} / 2")
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  # A zero after the end: text can be used as it stands.
  string(APPEND arrays "static const unsigned char asset_${index}[] = {\n${bytes}\n0};\n")
  string(APPEND rows "  {\"${name}\", asset_${index}, ${size}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUT} "// Made by cmake/BrimEmbed.cmake from web/.\n#include \"web/web_int.h\"\n\n${arrays}\n"
     "const brim_web_asset brim_web_assets[] = {\n${rows}};\n"
     "const size_t brim_web_asset_count = ${index};\n")

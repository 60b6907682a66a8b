# cmake -DFROM=file -DTO=file.c -DNAME=name -P embed.cmake: the bytes of a file as a C array.
file(READ ${FROM} hex HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes ${hex})
string(REGEX REPLACE "(.....................................................................................)"
  "\\1\n" bytes ${bytes})
file(WRITE ${TO} "#include <stddef.h>\n\nextern const unsigned char ${NAME}[];\nextern const size_t ${NAME}_size;\n"
  "const unsigned char ${NAME}[] = {\n${bytes}};\nconst size_t ${NAME}_size = sizeof ${NAME};\n")

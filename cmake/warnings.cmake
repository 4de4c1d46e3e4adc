# Warnings of the whole tree; errors with RAGGEDMLA_WERROR.
add_library(raggedmla_warnings INTERFACE)
target_compile_options(raggedmla_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wpedantic -Wshadow>
  $<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<BOOL:${RAGGEDMLA_WERROR}>>:-Werror>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${RAGGEDMLA_WERROR}>>:-Werror=all-warnings>)

# Sanitizers and coverage for the whole tree. Both go through global options: mixed builds give false reports.
if(RAGGEDMLA_SANITIZE)
  # A failed check ends the process, so that a test cannot pass over it. Frame pointers keep the reports readable.
  set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${sanitizers}>")
  add_link_options(${sanitizers})
endif()
if(RAGGEDMLA_COVERAGE)
  # Threads may lose counts to each other; whether a line ran at all is what is asked. Atomic counters make loops that
  # threads share many times slower.
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:--coverage>")
  add_link_options(--coverage)
endif()

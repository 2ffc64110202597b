# SPDX-License-Identifier: Apache-2.0
# cmake -DNM=… -DOBJECTS=a.o;b.o -DNAMESPACE=exec_v3 -P exec_symbols.cmake
# Objects that are compiled for a newer processor must not define functions under names that other objects define
# too: the linker keeps one of them, and an older processor would then run code that it does not know.
foreach(object ${OBJECTS})
  execute_process(COMMAND ${NM} -C --defined-only ${object} OUTPUT_VARIABLE symbols RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${NM} ${object} failed: ${result}")
  endif()
  string(REGEX MATCHALL "[^\n]+" lines "${symbols}")
  foreach(line ${lines})
    if(line MATCHES " [WVu] " AND NOT line MATCHES "${NAMESPACE}")
      message(FATAL_ERROR "${object} defines a shared symbol: ${line}")
    endif()
    math(EXPR count "${count} + 1")
  endforeach()
endforeach()
if(NOT count GREATER 100)
  message(FATAL_ERROR "only ${count} symbols were seen")
endif()

# SPDX-License-Identifier: Apache-2.0
# Layers (docs/decisions/0039): a folder of code is a target, and sees the headers of the layers that it uses, of those that
# they use, and no others. An upward include does not compile, and a layer can only use those that
# are declared before it.

# millpond_layer(NAME FOLDERS folders… [FILES_OF folders…] [WITHOUT files…] [USES layers…] [OPTIONS…] [SMALL files…]
# [BUILT_APART]): the object library NAME of all sources of the folders but tests, with their subfolders, or with FILES_OF
# without them; paths begin at native/. NAME_headers is what layers above, tests and programs see of it. WITHOUT: sources that
# belong to a program. SMALL: sources that run once in a process, compiled for size. BUILT_APART: targets of their own compile
# the sources, and link NAME_headers.
#
# `npm run check -- lint` reads these calls: there, a layer includes only those layers that it names itself.
function(millpond_layer name)
  cmake_parse_arguments(L "BUILT_APART" "" "FOLDERS;FILES_OF;WITHOUT;USES;OPTIONS;SMALL" ${ARGN})
  set(root ${CMAKE_BINARY_DIR}/layers/${name})
  set(sources "")
  # Made again each time: what was moved elsewhere must not be found here.
  file(REMOVE_RECURSE ${root})
  foreach(layer ${L_USES})
    if(NOT TARGET ${layer}_headers)
      message(FATAL_ERROR "The layer ${name} uses ${layer}, which is no layer below it")
    endif()
  endforeach()
  foreach(folder ${L_FOLDERS})
    get_filename_component(parent ${folder} DIRECTORY)
    file(MAKE_DIRECTORY ${root}/${parent})
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${root}/${folder} SYMBOLIC)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
    list(APPEND sources ${found})
  endforeach()
  foreach(folder ${L_FILES_OF})
    file(MAKE_DIRECTORY ${root}/${folder})
    file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/${folder}/*.h)
    foreach(header ${headers})
      file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${header} ${root}/${header} SYMBOLIC)
    endforeach()
    file(GLOB found CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
    list(APPEND sources ${found})
  endforeach()
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.cpp$|/(testing|tests)/")
  if(L_WITHOUT)
    list(REMOVE_ITEM sources ${L_WITHOUT})
  endif()

  add_library(${name}_headers INTERFACE)
  target_include_directories(${name}_headers INTERFACE ${root})
  set(used ${L_USES})
  list(TRANSFORM used APPEND _headers)
  target_link_libraries(${name}_headers INTERFACE ${used})
  if(L_BUILT_APART OR NOT sources)
    return()
  endif()
  list(TRANSFORM sources PREPEND ${PROJECT_SOURCE_DIR}/)
  add_library(${name} OBJECT ${sources})
  target_link_libraries(${name} PRIVATE millpond_flags ${name}_headers)
  target_compile_options(${name} PRIVATE ${L_OPTIONS})
  if(L_SMALL)
    list(TRANSFORM L_SMALL PREPEND ${PROJECT_SOURCE_DIR}/)
    set_source_files_properties(${L_SMALL} PROPERTIES COMPILE_OPTIONS "$<$<NOT:$<CONFIG:Debug>>:-Os>")
  endif()
endfunction()

# millpond_library(NAME LAYERS layers… [LIBS…]): an archive of layers, which shows their headers.
function(millpond_library name)
  cmake_parse_arguments(L "" "" "LAYERS;LIBS" ${ARGN})
  add_library(${name} STATIC)
  target_link_libraries(${name} PUBLIC millpond_flags ${L_LIBS})
  foreach(layer ${L_LAYERS})
    target_link_libraries(${name} PUBLIC ${layer}_headers)
    if(TARGET ${layer})
      target_sources(${name} PRIVATE $<TARGET_OBJECTS:${layer}>)
    endif()
  endforeach()
endfunction()

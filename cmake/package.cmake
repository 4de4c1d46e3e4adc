# Install rules and the CMake package: find_package(RaggedMLA) gives
#   raggedmla::raggedmla  the static library: C++ API and C ABI
#   raggedmla::shared     libraggedmla_c: the C ABI alone, for other languages
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/RaggedMLA)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(TARGETS raggedmla raggedmla_shared EXPORT RaggedMLATargets)
install(EXPORT RaggedMLATargets NAMESPACE raggedmla:: DESTINATION ${package_dir})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/RaggedMLAConfig.cmake.in
  ${PROJECT_BINARY_DIR}/RaggedMLAConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/RaggedMLAConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/RaggedMLAConfig.cmake ${PROJECT_BINARY_DIR}/RaggedMLAConfigVersion.cmake
  DESTINATION ${package_dir})

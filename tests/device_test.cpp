// Devices, kernel images, preload and workspaces.
#include <gtest/gtest.h>

#include "base/workspace.hpp"
#include "device/images.hpp"
#include "host/device_memory.hpp"
#include "support/error_message.hpp"
#include "support/mirror.hpp"

namespace raggedmla::test {

TEST(Device, CpuComesFirst) {
  const std::vector<DeviceInfo> all = devices();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].device.type, DeviceType::cpu);
  EXPECT_TRUE(all[0].supported);
  EXPECT_GT(all[0].multiprocessors, 0);
  EXPECT_GT(all[0].memory_bytes, 0u);
  EXPECT_EQ(static_cast<int>(all.size()) - 1, host::gpu_count());
}

TEST(Device, BuildInfoNamesBackendsAndImages) {
  const BuildInfo build = build_info();
  EXPECT_FALSE(build.version.empty());
  const bool with_gpu_backend = build.backends.size() == 3;
  EXPECT_EQ(with_gpu_backend, !build.gpu_architectures.empty());
  EXPECT_EQ(with_gpu_backend, host::gpu_type() != DeviceType::cpu);
}

TEST(Device, ImagesRunOnTheirDevices) {
  struct Case {
    const char* image;
    const char* device;
    bool runs;
  };
  const Case table[] = {
      {"sm_80", "sm_80", true},      {"sm_80", "sm_86", true},       {"sm_86", "sm_80", false},
      {"sm_80", "sm_90", false},     {"sm_90a", "sm_90", true},      {"sm_90a", "sm_100", false},
      {"sm_100a", "sm_103", false},  {"sm_100f", "sm_103", true},    {"compute_80", "sm_75", false},
      {"compute_80", "sm_80", true}, {"compute_80", "sm_120", true}, {"compute_90a", "sm_100", false},
      {"gfx942", "gfx942", true},    {"gfx942", "gfx90a", false},    {"compute_80", "gfx942", false},
  };
  for (const Case& c : table) EXPECT_EQ(image_runs_on(c.image, c.device), c.runs) << c.image << " on " << c.device;
}

TEST(Device, MissingImageIsNamed) {
  std::string expected = "no kernel image for sm_75; this build holds ";
  for (const std::string& image : built_images()) expected += (image == built_images().front() ? "" : ", ") + image;
  EXPECT_EQ(missing_image_text("sm_75"), expected);
}

TEST(Device, AbsentDeviceIsAnError) {
  EXPECT_NO_THROW(preload({}));
  EXPECT_THROW(preload({DeviceType::cuda, 1000}), DeviceError);
  EXPECT_THROW(preload({DeviceType::hip, 1000}), DeviceError);
}

class DeviceWorkspace : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (!present(GetParam())) GTEST_SKIP() << "no GPU";
  }
};

TEST_P(DeviceWorkspace, PreloadTwice) {
  preload(GetParam().device);
  preload(GetParam().device);
}

TEST_P(DeviceWorkspace, OnlyTheCounterAreaIsZeroed) {
  const Device device = GetParam().device;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{1000}, counter_area_bytes, counter_area_bytes + 512}) {
    host::Memory memory(device, bytes + 64);
    memory.fill(0xFF);
    const host::OwnedStream stream(device);
    initialize_workspace({memory.data(), bytes, device}, stream.get());
    host::synchronize(device);
    std::vector<std::uint8_t> content(bytes + 64);
    memory.download(content.data(), content.size());
    for (std::size_t i = 0; i < content.size(); ++i) {
      ASSERT_EQ(content[i], i < std::min(bytes, counter_area_bytes) ? 0 : 0xFF) << "byte " << i << " of " << bytes;
    }
  }
}

TEST_P(DeviceWorkspace, InitialisationIsAKernel) {
  const Device device = GetParam().device;
  if (device.type == DeviceType::cpu) GTEST_SKIP() << "graphs are a GPU's";
  preload(device);
  host::Memory memory(device, counter_area_bytes);
  const host::Graph graph(device, [&](Stream stream) {
    initialize_workspace({memory.data(), memory.bytes(), device}, stream);
  });
  EXPECT_EQ(graph.nodes().kernels, 1);
  EXPECT_EQ(graph.nodes().others, 0);
}

TEST_P(DeviceWorkspace, Messages) {
  const Device device = GetParam().device;
  host::Memory memory(device, 1024);
  const auto message = [](const Workspace& workspace) { return message_of([&] { initialize_workspace(workspace); }); };
  EXPECT_EQ(message({nullptr, 8, device}), "initialize_workspace: workspace is a null pointer of 8 bytes");
  EXPECT_EQ(message({static_cast<char*>(memory.data()) + 16, 64, device}),
            "initialize_workspace: workspace is not aligned to 256 bytes");
  EXPECT_EQ(message({nullptr, 0, device}), "no error");
}

INSTANTIATE_TEST_SUITE_P(, DeviceWorkspace, testing::ValuesIn(list_backends()),
                         [](const auto& test) { return backend_name(test.param); });

}  // namespace raggedmla::test

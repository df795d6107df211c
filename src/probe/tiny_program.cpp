// SPDX-License-Identifier: Apache-2.0
#include "probe/tiny_program.hpp"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace sandbox::probe {

namespace {

// As linkers have it for static programs; any page above 64 KiB would do.
constexpr std::uint64_t kLoadAddress = 0x400000;

#if defined(__x86_64__)
constexpr std::uint16_t kMachine = EM_X86_64;
// Machine code, because no compiler or linker may be needed where this runs.
// mov edi, 42; mov eax, 60 (exit); syscall
constexpr unsigned char kExit[] = {0xBF, kTinyExitStatus, 0, 0, 0, 0xB8, 60, 0, 0, 0, 0x0F, 0x05};
// mov eax, 1 (write); mov edi, 3; lea rsi, [rip+16]; mov edx, 1; syscall;
// xor edi, edi; mov eax, 60; syscall; the byte
constexpr unsigned char kSpeak[] = {
    0xB8, 1, 0, 0, 0, 0xBF, 3,    0,    0,    0,    0x48, 0x8D, 0x35, 16, 0,    0,    0,
    0xBA, 1, 0, 0, 0, 0x0F, 0x05, 0x31, 0xFF, 0xB8, 60,   0,    0,    0,  0x0F, 0x05, kTinyByte};
#elif defined(__aarch64__)
constexpr std::uint16_t kMachine = EM_AARCH64;
// mov x0, #42; mov x8, #93 (exit); svc #0
constexpr std::uint32_t kExit[] = {0xD2800540, 0xD2800BA8, 0xD4000001};
// mov x0, #3; adr x1, +28; mov x2, #1; mov x8, #64 (write); svc; mov x0, #0; mov x8, #93; svc; byte
constexpr std::uint32_t kSpeak[] = {0xD2800060, 0x100000E1, 0xD2800022, 0xD2800808, 0xD4000001,
                                    0xD2800000, 0xD2800BA8, 0xD4000001, kTinyByte};
#else
constexpr std::uint16_t kMachine = EM_NONE;
constexpr unsigned char kExit[] = {0};
constexpr unsigned char kSpeak[] = {0};
#endif

std::string wrap(std::string_view code)
{
    // No code for this architecture: the check says so instead of running something wrong.
    if (kMachine == EM_NONE) return {};
    constexpr std::size_t kHeaders = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr);
    Elf64_Ehdr file{};
    std::memcpy(file.e_ident, ELFMAG, SELFMAG);
    file.e_ident[EI_CLASS] = ELFCLASS64;
    file.e_ident[EI_DATA] = ELFDATA2LSB;
    file.e_ident[EI_VERSION] = EV_CURRENT;
    file.e_type = ET_EXEC;
    file.e_machine = kMachine;
    file.e_version = EV_CURRENT;
    // The entry is right behind the headers: one segment holds everything.
    file.e_entry = kLoadAddress + kHeaders;
    file.e_phoff = sizeof(Elf64_Ehdr);
    file.e_ehsize = sizeof(Elf64_Ehdr);
    file.e_phentsize = sizeof(Elf64_Phdr);
    file.e_phnum = 1;
    Elf64_Phdr segment{};
    segment.p_type = PT_LOAD;
    segment.p_flags = PF_R | PF_X;
    segment.p_vaddr = segment.p_paddr = kLoadAddress;
    segment.p_filesz = segment.p_memsz = kHeaders + code.size();
    segment.p_align = 0x10000;  // the largest page size of aarch64
    std::string image(kHeaders, '\0');
    std::memcpy(image.data(), &file, sizeof file);
    std::memcpy(image.data() + sizeof file, &segment, sizeof segment);
    return image.append(code);
}

}  // namespace

std::string tiny_exit_program()
{
    return wrap({reinterpret_cast<const char*>(kExit), sizeof kExit});
}

std::string tiny_speaking_program()
{
    return wrap({reinterpret_cast<const char*>(kSpeak), sizeof kSpeak});
}

}  // namespace sandbox::probe

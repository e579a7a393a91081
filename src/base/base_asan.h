// Poisoning for AddressSanitizer; nothing without it. Used by the allocator and the arena only.
#ifndef BRIM_BASE_ASAN_H_
#define BRIM_BASE_ASAN_H_

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define BRIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BRIM_ASAN 1
#endif
#endif

#ifdef BRIM_ASAN
#include <sanitizer/asan_interface.h>
#define BRIM_ASAN_POISON(ptr, size) ASAN_POISON_MEMORY_REGION((ptr), (size))
#define BRIM_ASAN_UNPOISON(ptr, size) ASAN_UNPOISON_MEMORY_REGION((ptr), (size))
#else
#define BRIM_ASAN_POISON(ptr, size) ((void)(ptr), (void)(size))
#define BRIM_ASAN_UNPOISON(ptr, size) ((void)(ptr), (void)(size))
#endif

#endif  // BRIM_BASE_ASAN_H_

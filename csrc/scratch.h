// Memory that a calling thread keeps, because fresh pages cost more than the arithmetic done in them.
#pragma once
#include <cstddef>
#include <memory>

namespace laconic {

class Scratch {
 public:
  // Room for `count` items, valid until the next call for the same object. Contents are undefined.
  template <class T> T* of(size_t count) {
    size_t wanted = count * sizeof(T) + 64;
    if (wanted > size_) {
      memory_.reset();
      memory_.reset(new char[wanted + wanted / 4]);
      size_ = wanted + wanted / 4;
    }
    return reinterpret_cast<T*>(memory_.get());
  }

 private:
  std::unique_ptr<char[]> memory_;
  size_t size_ = 0;
};

}  // namespace laconic

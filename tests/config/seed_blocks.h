// Every yaml block of the five guides, unchanged, with the guide's number and the line of its fence. test_seeds.c has
// the meaning of each. A check there compares them with the guides' own files if those are present.
#ifndef BRIM_TESTS_SEED_BLOCKS_H_
#define BRIM_TESTS_SEED_BLOCKS_H_

typedef struct seed_block {
  int seed;
  int line;  // line of the opening fence
  const char *text;
} seed_block;

static const seed_block seed_blocks[] = {
    {2, 117,
     "benchmark:\n"
     "  # 테스트할 배치 크기 (2의 거듭제곱 권장)\n"
     "  batch_sizes: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192]\n"
     "  \n"
     "  # 테스트할 workers 수\n"
     "  num_workers_options: [0, 2, 4, 8, 12, 16]\n"
     "  \n"
     "  # 각 설정당 테스트 스텝 수\n"
     "  steps_per_test: 10\n"
     "  \n"
     "  # Mixed precision 테스트 여부\n"
     "  test_mixed_precision: true\n"
     "  \n"
     "  # Pin memory 테스트 여부\n"
     "  test_pin_memory: true\n"},
    {2, 248,
     "data:\n"
     "  batch_size: 4096      # 또는 8192\n"
     "  num_workers: 12\n"
     "  pin_memory: true\n"
     "\n"
     "training:\n"
     "  use_amp: true         # 필수!\n"
     "  learning_rate: 0.0003 # sqrt rule로 조정\n"},
    {2, 266,
     "data:\n"
     "  batch_size: 1024      # 또는 2048\n"
     "  num_workers: 12\n"
     "  pin_memory: true\n"
     "\n"
     "training:\n"
     "  use_amp: true\n"
     "  learning_rate: 0.0002\n"},
    {2, 284,
     "data:\n"
     "  batch_size: 256       # 또는 512\n"
     "  num_workers: 8\n"
     "  pin_memory: true\n"
     "\n"
     "training:\n"
     "  use_amp: true\n"
     "  learning_rate: 0.00015\n"
     "  gradient_accumulation_steps: 4  # Effective batch: 1024\n"},
    {2, 305,
     "data:\n"
     "  batch_size: 2048\n"
     "  num_workers: 8\n"
     "\n"
     "training:\n"
     "  use_amp: true\n"},
    {2, 315,
     "data:\n"
     "  batch_size: 512\n"
     "  num_workers: 8\n"
     "\n"
     "training:\n"
     "  use_amp: true\n"
     "  gradient_accumulation_steps: 2  # Effective: 1024\n"},
    {2, 328,
     "data:\n"
     "  batch_size: 1024\n"
     "  num_workers: 6\n"
     "\n"
     "training:\n"
     "  use_amp: true\n"},
    {2, 338,
     "data:\n"
     "  batch_size: 256\n"
     "  num_workers: 4\n"
     "\n"
     "training:\n"
     "  use_amp: true\n"
     "  gradient_accumulation_steps: 4  # Effective: 1024\n"},
    {3, 13,
     "## ❌ 메모리 부족\n"
     "batch_size: 256\n"
     "\n"
     "## ✅ 배치 크기 줄이기\n"
     "batch_size: 128\n"
     "\n"
     "## ✅ 또는 gradient accumulation 사용\n"
     "batch_size: 64\n"
     "gradient_accumulation_steps: 2  # 실질적으로 128과 동일\n"},
    {3, 49,
     "## CPU 코어 수 확인: `lscpu` 또는 `nproc`\n"
     "\n"
     "## ❌ 너무 많으면 CPU 병목\n"
     "num_workers: 16\n"
     "\n"
     "## ✅ 최적값: CPU 코어 수의 1/2 ~ 1/4\n"
     "num_workers: 4\n"},
    {3, 61,
     "## ❌ 큰 모델\n"
     "model: resnet152\n"
     "\n"
     "## ✅ 작은 모델로 실험 후 스케일업\n"
     "model: resnet18\n"
     "\n"
     "## ✅ 또는 파라미터 줄이기\n"
     "model: wideresnet(depth=28, width=2)  # 기본값: depth=28, width=10\n"},
    {3, 74,
     "transform:\n"
     "  train: \"resize(size=224) | ...\"  # ❌ 높은 해상도\n"
     "  train: \"resize(size=128) | ...\"  # ✅ 낮은 해상도\n"
     "\n"
     "## 또는 동적 해상도\n"
     "transform:\n"
     "  train: \"random_resized_crop(size=224, scale=(0.8, 1.0)) | ...\"\n"},
    {3, 98,
     "## 데이터 로딩 최적화\n"
     "num_workers: 4\n"
     "pin_memory: true  # CUDA 메모리 고정 (속도 향상)\n"
     "persistent_workers: true  # 워커 재사용 (초기화 오버헤드 감소)\n"},
    {3, 130,
     "## DataLoader에서 자동으로 다음 배치 준비\n"
     "dataloader:\n"
     "  train: basic(split=train, shuffle=true, prefetch_factor=2)\n"},
    {3, 157,
     "## config/distributed_experiment.yaml\n"
     "device: [0, 1, 2, 3]  # 4개 GPU에 자동 분배\n"
     "batch_size: 256       # 각 GPU당 64\n"
     "\n"
     "## PyTorch DistributedDataParallel 자동 활성화\n"},
    {3, 167,
     "## 서버: 로컬 GPU 없이 큐 관리만\n"
     "## uv run app.py --server-only\n"
     "\n"
     "## 클라이언트 1: GPU 0-1 사용\n"
     "## uv run app.py --client-only --url http://server:8000\n"
     "\n"
     "## 클라이언트 2: GPU 0-3 사용\n"
     "## uv run app.py --client-only --url http://server:8000\n"},
    {3, 182,
     "## config/parallel_grid.yaml\n"
     "lr: [0.0001, 0.001, 0.01]  # 3개 실험\n"
     "batch_size: [64, 128]      # 2개 실험\n"
     "## → 총 6개 실험\n"
     "\n"
     "device: [0, 1, 2, 3]  # 4개 GPU에 분배\n"
     "## → 동시에 4개 실험 실행, 나머지 2개는 큐 대기\n"},
    {3, 290,
     "## 메모리 절약 최우선\n"
     "batch_size: 64              # 배치 크기 줄이기\n"
     "gradient_accumulation_steps: 2\n"
     "num_workers: 2              # 워커 수 줄이기\n"
     "transform:\n"
     "  train: \"resize(size=128) | ...\"  # 해상도 줄이기\n"},
    {4, 21,
     "data:\n"
     "  num_workers: 6          # RAM 24GB 활용 (4→6)\n"
     "  pin_memory: true        # WSL2 GPU 전송 가속\n"},
    {4, 34,
     "gpu:\n"
     "  mixed_precision: true   # 자동 활성화\n"},
    {4, 46,
     "gpu:\n"
     "  gradient_accumulation: 4  # STL-10\n"},
    {4, 64,
     "gpu:\n"
     "  cudnn_benchmark: true\n"},
    {4, 75,
     "gpu:\n"
     "  empty_cache_freq: 5     # STL-10 (큰 이미지이므로 자주 비우기)\n"},
    {4, 141,
     "# stl10_config.yaml\n"
     "data:\n"
     "  batch_size: 96   # 더 줄이기 (128→96)\n"
     "\n"
     "gpu:\n"
     "  gradient_accumulation: 5  # 늘리기 (4→5)\n"
     "  empty_cache_freq: 3       # 더 자주 (5→3)\n"},
    {4, 152,
     "data:\n"
     "  num_workers: 4    # 줄이기 (6→4)\n"
     "  # 또는\n"
     "  num_workers: 8    # 늘리기 (RAM이 충분하면)\n"},
};

#endif  // BRIM_TESTS_SEED_BLOCKS_H_

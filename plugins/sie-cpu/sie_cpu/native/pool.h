// A work-sharing thread pool: the caller works too, and waits only for threads that have claimed an item.
//
// The next free thread takes the next item of a phase, and a phase begins when the one before is done. A descheduled
// helper delays nobody: on a busy machine, a barrier of all threads at every phase takes many times as long. Helpers
// sleep between jobs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <sched.h>
#include <thread>
#include <vector>

#include "simd.h"

// Before a waiting thread offers its processor to others: 40 to 400 microseconds, as a pause takes 25 to 140 cycles.
constexpr int SPINS = 4000;

struct Job {
    // `work(phase, item, place)`: called once for each item; `place` is the thread's own, below `places`. It must not
    // throw. Its captures have to live until `run` returns, and are not touched afterwards.
    Job(std::vector<int64_t> items, int places, std::function<void(int64_t, int64_t, int)> work)
        : items(std::move(items)), places(places), work(std::move(work)), progress(this->items.size()) {}

    struct Progress {
        alignas(64) std::atomic<int64_t> taken{0};
        alignas(64) std::atomic<int64_t> done{0};
    };
    const std::vector<int64_t> items;
    const int places;
    const std::function<void(int64_t, int64_t, int)> work;
    std::vector<Progress> progress;
    std::atomic<int> entered{0};

    // Works until nothing is left to take.
    void take_part() {
        const int place = entered++;
        if (place >= places) return;
        for (size_t phase = 0; phase < items.size(); phase++) {
            if (phase) wait_for(phase - 1);
            for (int64_t item; (item = progress[phase].taken++) < items[phase];) {
                work((int64_t)phase, item, place);
                progress[phase].done.fetch_add(1, std::memory_order_release);
            }
        }
    }
    void wait_for(size_t phase) const {
        for (int spins = 0; progress[phase].done.load(std::memory_order_acquire) < items[phase]; spins++) {
            if (spins < SPINS) relax();
            else sched_yield();
        }
    }
};

class Pool {
  public:
    // The one pool of the process. It outlives every caller and is never taken down.
    static Pool &shared() {
        static Pool *pool = new Pool;
        return *pool;
    }

    // Runs a job with up to `places - 1` helpers; returns when every item is done. Callers may come from many threads.
    void run(const std::shared_ptr<Job> &job) {
        if (job->places > 1) offer(job);
        job->take_part();
        if (!job->items.empty()) job->wait_for(job->items.size() - 1);
        if (job->places > 1) withdraw(job);
    }

  private:
    void offer(const std::shared_ptr<Job> &job) {
        {
            std::lock_guard<std::mutex> hold(lock_);
            try {
                for (; helpers_ < job->places - 1; helpers_++) std::thread([this] { help(); }).detach();
            } catch (const std::exception &) {
                // No more threads or memory: continue with the existing helpers; the caller needs none.
            }
            jobs_.push_back(job);
        }
        offered_.notify_all();
    }
    void withdraw(const std::shared_ptr<Job> &job) {
        std::lock_guard<std::mutex> hold(lock_);
        jobs_.remove(job);
    }
    void help() {
        for (;;) {
            std::shared_ptr<Job> job;
            {
                std::unique_lock<std::mutex> hold(lock_);
                offered_.wait(hold, [this] { return !jobs_.empty(); });
                job = jobs_.front();
            }
            job->take_part();
            withdraw(job); // all items are taken
        }
    }

    std::mutex lock_;
    std::condition_variable offered_;
    std::list<std::shared_ptr<Job>> jobs_;
    int helpers_ = 0;
};

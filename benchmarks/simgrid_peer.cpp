// The peer SimGrid of dag_engine.py: an actor for each worker and one for the network, semaphores where they meet.
//   simgrid_peer WORKERS ITERATIONS LAYERS FILE: FILE holds the durations as doubles, of the workers' tasks [iterations,
//   2 * layers, workers] and of the shared ones [iterations, layers + 1]. Prints the seconds of the run and the job's end.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <simgrid/s4u.hpp>

namespace sg4 = simgrid::s4u;

int main(int argc, char** argv)
{
  sg4::Engine engine(&argc, argv);
  const int workers = std::atoi(argv[1]), iterations = std::atoi(argv[2]), layers = std::atoi(argv[3]);
  std::vector<double> own(std::size_t(iterations) * 2 * layers * workers), shared(std::size_t(iterations) * (layers + 1));
  std::ifstream file(argv[4], std::ios::binary);
  file.read(reinterpret_cast<char*>(own.data()), own.size() * sizeof(double));
  file.read(reinterpret_cast<char*>(shared.data()), shared.size() * sizeof(double));

  auto* zone = sg4::create_full_zone("cluster");
  std::vector<sg4::Host*> hosts;
  for (int host = 0; host <= workers; host++)
    hosts.push_back(zone->create_host(std::to_string(host), 1.0));
  zone->seal();

  const auto begin = std::chrono::steady_clock::now();
  std::vector<int> missing(iterations * layers, workers); // actors take turns: no lock is needed
  std::vector<sg4::SemaphorePtr> ready, updated;
  for (int meeting = 0; meeting < iterations * layers; meeting++)
    ready.push_back(sg4::Semaphore::create(0));
  for (int iteration = 0; iteration < iterations; iteration++)
    updated.push_back(sg4::Semaphore::create(0));

  for (int worker = 0; worker < workers; worker++)
    sg4::Actor::create("worker", hosts[worker], [&, worker] {
      for (int i = 0; i < iterations; i++) {
        for (int task = 0; task < 2 * layers; task++) {
          sg4::this_actor::execute(own[(std::size_t(i) * 2 * layers + task) * workers + worker]);
          if (const int place = i * layers + task - layers; task >= layers && --missing[place] == 0)
            ready[place]->release();
        }
        updated[i]->acquire();
      }
    });
  sg4::Actor::create("network", hosts[workers], [&] {
    for (int i = 0; i < iterations; i++) {
      for (int layer = 0; layer < layers; layer++) {
        ready[i * layers + layer]->acquire();
        sg4::this_actor::execute(shared[i * (layers + 1) + layer]);
      }
      sg4::this_actor::execute(shared[i * (layers + 1) + layers]);
      for (int worker = 0; worker < workers; worker++)
        updated[i]->release();
    }
  });
  engine.run();
  const std::chrono::duration<double> run = std::chrono::steady_clock::now() - begin;
  std::printf("%.9g %.17g\n", run.count(), sg4::Engine::get_clock());
}

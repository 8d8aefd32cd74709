# JupyterLab with the workbench, on a CPU: docker build -t kernel-workbench . && docker run -p 8888:8888 kernel-workbench
# On a machine with a GPU: docker run --gpus all. Nothing but pip's packages and a C++ compiler is needed.
FROM python:3.12-slim-bookworm

# Further packages of the distribution; the development container takes chromium, for the tests in a browser.
ARG PACKAGES=""
# hadolint ignore=DL3008,SC2086
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ git $PACKAGES \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home workbench

# hadolint ignore=DL3066
USER workbench
WORKDIR /home/workbench/kernel-workbench
ENV PATH=/home/workbench/venv/bin:$PATH PIP_NO_CACHE_DIR=1
RUN python -m venv /home/workbench/venv

COPY --chown=workbench . .
RUN python -m pip install -c constraints.txt -e ".[lab,test]"

EXPOSE 8888
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser", "notebooks"]

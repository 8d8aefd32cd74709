int doubled(int);
